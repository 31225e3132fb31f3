"""Algorithms for task trees and graphs on several processors."""
