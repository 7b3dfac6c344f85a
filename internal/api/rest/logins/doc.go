// Package logins has the routes by which a browser logs in at an identity provider. They need no credential: their result is
// one. The server redeems the code, so that the page of the console asks no other host.
package logins
