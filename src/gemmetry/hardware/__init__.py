"""Peak rates of processors (``devices.py``, ``cpu.py``, ``roofline.py``) and what this machine has
(``detect.py``, ``doctor.py``, ``environment.py``)."""
