//go:build tools

// Package tools names what hack/cluster builds.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
