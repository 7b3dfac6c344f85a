// Package overview is the route that tells how a server goes, for people who look at it.
package overview
