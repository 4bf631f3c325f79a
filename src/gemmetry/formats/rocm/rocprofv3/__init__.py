"""rocprofv3: its JSON documents and its CSV files."""
