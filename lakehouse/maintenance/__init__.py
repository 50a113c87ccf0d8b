"""Maintenance: each action is first a plan, which can be printed, then its execution.

`plan_x(catalog, identifier, options) -> XPlan`, `execute_x(catalog, plan) -> XResult`, and
`x(...)`, which does both.
"""
