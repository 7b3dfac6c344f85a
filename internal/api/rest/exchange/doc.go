// Package exchange is one HTTP request with its answer: its id, its rolling deadlines, its caller and its
// span. Each request passes the guard, which keeps web pages of other origins away, before a router sees
// it.
package exchange
