//go:build tools

// Package tools names the etcd server of the lab's control plane, so that
// go.mod and go.sum pin it. It is never compiled: the lab runs `go build` on
// the import path below.
package tools

import _ "go.etcd.io/etcd/server/v3"
