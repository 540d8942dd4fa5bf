"""Embeddings by the million: folders of Parquet files, and Ray."""
