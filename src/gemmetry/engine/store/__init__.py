"""An experiment's folder: manifest, journal, artefacts, references; merging and importing."""
