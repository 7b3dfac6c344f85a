// Package overview has the routes that tell how a server goes, for people who look at it.
package overview
