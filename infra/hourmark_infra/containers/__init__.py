"""Entry points of the containers in `docker-compose.yml`: `python -m hourmark_infra.containers ROLE`.

Each role renders its settings with the templates of the local stack (`hourmark_infra.stack`), for
servers on separate hosts, and then replaces itself with its server by `exec`. The server therefore
receives the container's signals, and its exit code is the container's exit code.

Reading order: `site` (number and addresses of the servers), `site_setup` (shared secrets and
identities), `settings` (the `hourmark.toml` of a role), `roles` (the table of roles),
`health_checks`, `whole_stack` (a complete stack in one container).

Containers may start in any order: each role waits without a time limit for what it needs.
"""
