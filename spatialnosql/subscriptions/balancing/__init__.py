"""Load that moves: SWARM's and PS2Stream's adaptive balancing, S3-TM's shedding.

A *policy* sees what a round brought and may change the plans in force; see `policies`. The decisions are pure functions
from state to state. Nothing here knows Spark or a network.
"""
