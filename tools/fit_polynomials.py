#!/usr/bin/env python3
"""Makes the coefficients of kernels/cpu/vector_math.h: minimax polynomials by Remez' exchange (needs mpmath).

exp      (eʳ - 1 - r)/r² on |r| <= ln 2 / 2
normal   Φ(-a)/(φ(a)·√2π·t) as a polynomial in t = 1/(1 + 0.35·a), 0 <= a <= 14.5; 0.35 gave the smallest error
tanh     (tanh(x)/x - 1)/x² as a polynomial in x², |x| <= 0.6
"""
import mpmath as mp

mp.mp.dps = 40


def remez(function, weight, low, high, degree, rounds=10, points=1000):
    """The polynomial, lowest coefficient first, that minimises max |weight·(function - polynomial)|; that maximum."""
    count = degree + 2
    grid = [low + (high - low) * mp.mpf(i) / points for i in range(points + 1)]
    values, weights = [function(x) for x in grid], [weight(x) for x in grid]
    nodes = sorted((low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * count))
                   for i in range(count))
    for _ in range(rounds):
        system, right = mp.matrix(count, count), mp.matrix(count, 1)
        for i, x in enumerate(nodes):
            for j in range(degree + 1):
                system[i, j] = x**j
            system[i, degree + 1] = (-1)**i / weight(x)
            right[i] = function(x)
        solution = mp.lu_solve(system, right)
        coefficients = [solution[j] for j in range(degree + 1)]
        errors = [w * (v - mp.polyval(coefficients[::-1], x)) for x, v, w in zip(grid, values, weights)]
        runs, start = [], 0  # of errors of one sign: their extremes are the next nodes
        for i in range(1, len(grid) + 1):
            if i == len(grid) or (errors[i] > 0) != (errors[start] > 0):
                runs.append(max(range(start, i), key=lambda k: abs(errors[k])))
                start = i
        while len(runs) > count:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        if len(runs) < count:
            break
        nodes = [grid[k] for k in runs]
    return coefficients, max(abs(e) for e in errors)


def show(name, fitted):
    coefficients, error = fitted
    print(f"{name}: error {mp.nstr(error, 3)}")
    for power, c in enumerate(coefficients):
        print(f"  {power}: {mp.nstr(c, 12)}")


def main():
    half = mp.log(2) / 2 * mp.mpf("1.001")
    show("exp", remez(lambda r: (mp.exp(r) - 1 - r) / r**2 if r else mp.mpf(1) / 2, lambda r: r * r + mp.mpf("0.02"),
                      -half, half, 4))
    slope = mp.mpf("0.35")

    def normal(t):
        a = (1 / t - 1) / slope
        return mp.erfc(a / mp.sqrt(2)) / 2 * mp.exp(a * a / 2) / t

    show("normal", remez(normal, lambda t: 1 / normal(t), 1 / (1 + slope * mp.mpf("14.5")), mp.mpf(1), 8))

    def tanh_over_x(square):
        x = mp.sqrt(square)
        return mp.tanh(x) / x if square else mp.mpf(1)

    show("tanh", remez(lambda u: (tanh_over_x(u) - 1) / u if u else -mp.mpf(1) / 3,
                       lambda u: u / tanh_over_x(u) + mp.mpf("0.002"), mp.mpf(0), mp.mpf("0.6")**2, 4))


if __name__ == "__main__":
    main()
