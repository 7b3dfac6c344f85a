//go:build race

package codeapi

// slowdown is how much longer things may take under the race detector.
const slowdown = 10
