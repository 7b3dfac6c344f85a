// Package typescript turns TypeScript into JavaScript, with the wrappers of tools that it imports put into the text.
package typescript
