"""What training sweeps show: points, GEMMs under communication, steps and causes."""
