"""What keeps a solution in. A line that is deleted here takes a property away; each file gives these.

- `uids.py`: a worker has a user of its own. It cannot signal, trace or read another worker or the judge, and every
  process that it leaves is found by its user id. A user id that is given again holds nothing of the last worker.
- `confinement.py`: a worker can write only its scratch folder and /dev/shm, read no solution but its own, open no
  connection, and regain no privilege. It is applied before the worker reads a solution.
- `reaper.py`: where workers share one user, a process that left its group is still found and ended.

Nothing here makes anything quicker: see `judge/processes/`.
"""
