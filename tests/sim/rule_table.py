"""The table of docs/sync-rules.md, from the rules."""


def rule_table(rules):
    """One row a rule; a number of syncs that depends on the call is `by call`."""
    rows = ["| operation | kind | syncs | why | source |", "|---|---|---|---|---|"]
    for rule in rules:
        count = rule.count if isinstance(rule.count, int) else "by call"
        rows.append(f"| `{rule.op}` | `{rule.kind}` | {count} | {rule.reason} | {rule.source} |")
    return "\n".join(rows) + "\n"
