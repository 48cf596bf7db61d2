"""All items of all papers on one page: how much of each was run, and every number beside the one that is printed."""
