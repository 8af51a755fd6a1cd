"""The same federated averaging in h2fdp, Flower and pfl, each a program that runs in an environment of its own."""
