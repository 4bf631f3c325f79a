"""Commands as jobs, such as training runs: started one after the other, watched, and journalled.

``running.py`` is an overview. Nothing here knows what a command does.
"""
