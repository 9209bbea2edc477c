"""``plog reassign-partitions``: move the replicas of partitions to other brokers.

command.py contains the actions of Kafka's tool. reassignment_file.py reads and writes the JSON
documents, throttles.py limits the bytes that moves use, verification.py reports how far moves are,
and log_dir_moves.py moves replicas between the directories of a broker. `plog rebalance` and
`plog broker` use the same modules. Start with command.py.
"""
