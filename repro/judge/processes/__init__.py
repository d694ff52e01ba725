"""Worker processes: what starts them, and what makes starts quick. Nothing here may weaken `judge/isolation/`.

- `launcher.py`: starts, stops and ends workers; it alone may run as root, and sees no solution. Once it has ended a
  worker, none of the worker's processes is left.
- `forkserver.py`: a worker starts in milliseconds, as a fork of a process that imported torch and saw nothing else.
- `preload.py`: what that process imports and compiles before any request waits for it.
- `pool.py`: workers start while the judge does other work.
- `client.py`: the judge asks a worker with a time limit, stops and resumes it, and knows whether it came to rest.
- `wire.py`: messages are bounded lines of JSON over two pipes; nothing of a worker's is unpickled.
"""
