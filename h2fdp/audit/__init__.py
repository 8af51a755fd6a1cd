"""An empirical lower bound on epsilon from one training run (Steinke, Nasr and Jagielski 2023).

N canaries, each in or out by a fair coin, are guessed from what one observer received. An (epsilon, delta) guarantee
limits how many guesses can be right; more right guesses than that refute it.
"""
