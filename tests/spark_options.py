"""Spark for tests: one JVM a run (the second `build_session` adopts the first), started with less compiling."""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_START = {"spark.driver.extraJavaOptions": QUICK_JAVA, "spark.driver.memory": "1g"}
