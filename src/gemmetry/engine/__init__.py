"""L3: plan -> isolated workers -> journal -> resume."""
