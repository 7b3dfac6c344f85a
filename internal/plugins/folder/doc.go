// Package folder follows the plugins that all users have: the folders in installed/ of one folder, or those that are
// compiled into the program. It copies each into a store, so that a user sees a plugin whole or not at all while an
// administrator changes its files. It knows files alone; package plugins reads what is in them.
//
// Locks: Folder.mu guards what was found. It is held for a look at the folder, and while a plugin is copied.
package folder
