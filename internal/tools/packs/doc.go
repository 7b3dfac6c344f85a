// Package packs has the tool packs that are connected to this server: programs outside that offer tools to agents over a
// stream which they have opened. Registry says which packs there are, and is what the hub gets them from. Service accepts
// their streams. A session is one stream, with the calls on it.
//
// A pack that breaks the contract, floods or hangs hurts only itself: everything that it sends is bounded, its session
// ends with an error that says why, and the calls on it end at once. A pack that goes stays listed for a while, and its
// tools are taken up again when it returns.
//
// Locks: Registry.mu guards the map of packs and the lists made of them. It is taken before Pack.mu, which guards what a
// pack offers and its session. After that comes session.mu, which guards the calls of one stream, and last outbox.mu, which
// guards the messages that wait to be sent. slow.mu guards the addresses that sent wrong credentials,
// opening.mu the streams that are not registered yet, and refusals.mu a number; each is taken alone. Nothing is sent, and no listener
// called, while one is held.
package packs
