import random


def reset(seed):
    return random.Random(seed).random()
