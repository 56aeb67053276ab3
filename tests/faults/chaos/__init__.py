"""Faults by the hundred: `./hourmark chaos run`, on a world of its own.

The story is `run`; what it is made of:

- what will happen: `schedule`, a pure function of a seed
- the world: `world` (servers, components, links), `settings`, `victims` (whom a fault may hit),
  `link` (a bad network)
- three registries, any two of which combine: `workloads.WORKLOADS`, `faults.FAULTS`,
  `checkers.CHECKERS`
- what is seen: `flows` (what must go on), `eyes` (how it is read), `evidence` (all of it, as data)
- the judge, judged: `planted`
- what it came to: `trials`; `__main__` is the command
"""
