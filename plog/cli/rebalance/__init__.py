"""``plog rebalance``: distribute replicas and leaders evenly, with the least data to copy.

command.py is the entry point. cluster_state.py reads the cluster, plan.py compares the present
replicas with the planned ones and prints the difference, and reassignment_run.py has the controller
carry out a plan. `plog broker` uses the same modules. The planner is `plog.balance`.
"""
