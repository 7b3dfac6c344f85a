// Package search finds tools by what they do: an index of a tool set, made once, that ranks the
// tools for a query in the words of an agent.
//
// The ranking is BM25F (Robertson, Zaragoza, Taylor: "Simple BM25 extension to multiple weighted
// fields", 2004) over stems. All that does not depend on the query is computed when the index is made,
// so that a search adds up numbers. Nothing in here knows any query or any tool: the weights were set on
// another corpus than the one of the test.
package search
