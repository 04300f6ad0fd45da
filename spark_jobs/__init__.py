"""Spark jobs, one a file: each runs as ``spatialnosql JOB`` and with plain ``spark-submit``."""
