"""reassemble."""
