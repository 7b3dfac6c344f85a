package auth

import (
	"container/list"
	"time"
)

// cache holds values for a time, the most recently used ones when there are too many. Its owner
// locks it.
type cache[V any] struct {
	max   int
	items map[string]*list.Element
	order list.List // of *cached[V], most recently used first
}

type cached[V any] struct {
	key   string
	value V
	until time.Time
}

func newCache[V any](max int) *cache[V] {
	return &cache[V]{max: max, items: map[string]*list.Element{}}
}

func (c *cache[V]) get(key string, now time.Time) (v V, ok bool) {
	e := c.items[key]
	if e == nil {
		return v, false
	}
	it := e.Value.(*cached[V])
	if !now.Before(it.until) {
		c.drop(e)
		return v, false
	}
	c.order.MoveToFront(e)
	return it.value, true
}

func (c *cache[V]) put(key string, v V, until time.Time) {
	c.remove(key)
	c.items[key] = c.order.PushFront(&cached[V]{key, v, until})
	if len(c.items) > c.max {
		c.drop(c.order.Back())
	}
}

func (c *cache[V]) remove(key string) {
	if e := c.items[key]; e != nil {
		c.drop(e)
	}
}

// removeIf looks at every value.
func (c *cache[V]) removeIf(gone func(V) bool) {
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if gone(e.Value.(*cached[V]).value) {
			c.drop(e)
		}
		e = next
	}
}

func (c *cache[V]) drop(e *list.Element) {
	delete(c.items, e.Value.(*cached[V]).key)
	c.order.Remove(e)
}
