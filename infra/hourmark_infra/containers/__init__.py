"""What runs in a container of `docker-compose.yml`: `python -m hourmark_infra.containers ROLE`.

Each role renders its settings with the templates of the local stack (`hourmark_infra.stack`), for
servers that have hosts of their own, and becomes its server: `exec`, so that the server gets the
container's signals, and its exit code is the container's.

A reader's path: `site` (how many servers, and where) → `first` (secrets and identities, made once)
→ `settings` (a role's `hourmark.toml`) → `roles` (the table of roles) → `wellness` (what a health
check asks) → `application` (a program that logs).

No role counts on another to be there first: each waits for what it needs, as long as it takes.
"""
