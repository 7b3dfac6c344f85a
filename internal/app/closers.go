package app

import "errors"

// closers are what closes the parts of a server, in the order in which the parts were opened.
type closers struct{ list []func() error }

func (c *closers) onClose(f func() error) { c.list = append(c.list, f) }

// Close closes the parts, last first. It calls all, and reports each error.
func (c *closers) Close() error {
	var errs []error
	for i := len(c.list) - 1; i >= 0; i-- {
		errs = append(errs, c.list[i]())
	}
	c.list = nil
	return errors.Join(errs...)
}
