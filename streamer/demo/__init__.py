"""The demonstration: a bulk job and single questions side by side on the embedded stack."""
