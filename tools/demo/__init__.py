"""The demo: one volume on real htrflow, with an embedded S3 and an origin."""
