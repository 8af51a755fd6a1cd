"""Tables and figures of a paper in its own words: labels, values across the columns, PGF, all figures of a report."""
