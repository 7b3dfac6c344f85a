// Package profiles is the commands that keep at which servers the user is logged in.
package profiles
