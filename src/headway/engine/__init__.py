"""A round is a function; an executor only decides how fast."""
