// Package access decides who may make a request: the credential becomes a sandbox.Caller, whose role and
// threads are compared with the rule of the route.
package access
