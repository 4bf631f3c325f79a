"""What kind of bug made a result wrong, from where and how it is wrong."""
