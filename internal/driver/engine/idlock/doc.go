// Package idlock serialises what a driver does with one sandbox, while other sandboxes go on. A
// driver needs it so that two calls to Create for one id start one container. A caller that
// holds one id does not lock another.
package idlock
