"""The same federated averaging in h2fdp, Flower, pfl and JAX, each a program that runs in an environment of its own."""
