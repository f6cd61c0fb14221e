"""The search: pure functions of a tree and a budget.

`policy.next_steps(tree, policy, budget, spend)` gives the steps to open next, none while open ones have to end first.
The same tree gives the same steps. A step whose attempt is open shows in the node's state and is not asked for again.

A `Policy` is a frozen dataclass of parameters with a `name`; `policy.parse_policy` reads its document and raises
SpecError for an unknown name or parameter. `policy_base.TreePolicy` is what every policy extends.

A node may be asked for ideas in several rounds. The step's `ordinal` is the round, and opening it sets the node's
`ideated`, so a round whose requests all failed still counts. A restart carries `technique_not_in` in its parameters, a
round that reflects `reflect: 1`. A `plant` step takes no attempt: it makes nodes without an idea, and the policy is
asked again. A policy sees a banned node as closed. docs/search.md has the policies.
"""
