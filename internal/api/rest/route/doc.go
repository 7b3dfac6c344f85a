// Package route is the one table of routes. A route declares beside its handler who may call it, which
// server answers, which bodies it takes, and how its limits are counted. The OpenAPI document is made from
// the table, and of the shapes of inputs and outputs here that many routes have in common.
//
// Locks: Deprecations.mu guards which callers were told today. It is held for a look at a map.
package route
