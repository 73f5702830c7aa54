"""A real multi-region Kubernetes on one machine, for an ordinary user, without Docker.

Each region has its own etcd, API server, controller-manager and scheduler; at the higher levels also real nodes with
containerd and runc, and a network whose links between regions can be shaped and cut. See README.md beside this file.
"""
