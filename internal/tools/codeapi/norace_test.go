//go:build !race

package codeapi

const slowdown = 1
